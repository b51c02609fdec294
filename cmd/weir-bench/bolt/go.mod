module github.com/weir-agent/weir/cmd/weir-bench/bolt

go 1.26

require (
	go.etcd.io/bbolt v1.5.0 // indirect
	golang.org/x/sys v0.45.0 // indirect
)
