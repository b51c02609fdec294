module github.com/weir-agent/weir

go 1.26.0

require (
	github.com/klauspost/crc32 v1.3.0
	golang.org/x/sys v0.50.0
	pgregory.net/rapid v1.3.0
)

require go.uber.org/goleak v1.3.0
