package inboxtest

var refusalCases, nestedCases, handleCases, connectionCases []Case
