// Package vfstest has what tests of durability need: a Disk in memory that can crash, an Injector that
// makes operations of any vfs.FS fail, stop or crash and records them, and the Suite that
// every vfs.FS passes.
//
// The two exhaustive loops over a protocol are: add Fault{Kinds: Mutating, At: k, Err: …} or
// Fault{Kinds: Mutating, At: k, Crash: true} to a fresh Injector on a fresh Disk for k = 1, 2, …, until Fired
// is empty; after each, recover from images of the Disk (both extremes and some seeds) and from
// Kill, and compare with what was acked.
package vfstest
