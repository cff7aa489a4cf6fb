package inboxtest

var dispatchCases = []Case{}
