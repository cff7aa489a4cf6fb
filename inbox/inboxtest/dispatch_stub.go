package inboxtest

var handleCases []Case
