module github.com/weir-agent/weir

go 1.26

require (
	github.com/klauspost/compress v1.20.4
	go.uber.org/goleak v1.3.0
)
