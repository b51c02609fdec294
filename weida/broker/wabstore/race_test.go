//go:build race

package wabstore_test

// stride is how many operations a crash loop passes over: under the race detector it is a sample.
const stride = 7
