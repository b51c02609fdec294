//go:build !race

package wabstore_test

// stride is how many operations a crash loop passes over.
const stride = 1
