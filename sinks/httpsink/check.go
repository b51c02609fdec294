package httpsink

// Check returns all faults of the options, joined, without reading a file or opening
// a connection.
func (o Options) Check() error {
	_, f := resolve(o)
	return f.Err()
}
