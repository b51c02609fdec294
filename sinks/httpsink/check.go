package httpsink

import "errors"

// Check returns all faults of the options, joined, without reading a file or opening
// a connection.
func (o Options) Check() error {
	_, f := resolve(o)
	return errors.Join(f...)
}
