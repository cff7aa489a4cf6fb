package inboxtest

var runCases = []Case{}
