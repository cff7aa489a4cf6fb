package inboxtest

var retryCases = []Case{}
