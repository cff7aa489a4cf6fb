module github.com/letterbox-go/letterbox/examples

go 1.25.0

require github.com/letterbox-go/letterbox v0.0.0

replace github.com/letterbox-go/letterbox => ../
