package inboxtest

var acceptCases = []Case{}
