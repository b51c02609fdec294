package vfstest_test

import (
	"testing"

	"github.com/weir-agent/weir/wab/vfs"
	"github.com/weir-agent/weir/wab/vfs/vfstest"
)

func TestDiskSuite(t *testing.T) {
	vfstest.Suite(t, func(*testing.T) vfs.FS { return vfstest.NewDisk() })
}

func TestInjectorSuite(t *testing.T) {
	vfstest.Suite(t, func(*testing.T) vfs.FS { return vfstest.NewInjector(vfstest.NewDisk()) })
}
