//go:build race

package wab_test

// stride: the race detector makes every step some ten times slower, so only each stride-th operation is taken; `make
// crash` takes them all without it.
const stride = 11
