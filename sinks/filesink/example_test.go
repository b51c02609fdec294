package filesink_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/filesink"
	"github.com/weir-agent/weir/wab/record"
	"github.com/weir-agent/weir/wab/vfs"
)

func Example() {
	dir, err := os.MkdirTemp("", "filesink")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "delivered.txt")
	folder, err := vfs.OpenDir(filepath.Dir(path))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer folder.Close()
	sink, err := filesink.New(filesink.Options{FS: folder, Path: path, Format: filesink.FormatLines})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sink.Close()

	records := []record.Record{{Payload: []byte("one")}, {Payload: []byte("two")}}
	for _, o := range sink.Deliver(context.Background(), sinks.Batch{Records: records, Attempt: 1}) {
		fmt.Println(o.Verdict)
	}
	text, _ := os.ReadFile(path)
	fmt.Print(string(text))
	// Output:
	// delivered
	// delivered
	// one
	// two
}
