//go:build !race

package wab_test

// stride 1: every operation.
const stride = 1
