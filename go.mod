module github.com/weir-agent/weir

go 1.26
