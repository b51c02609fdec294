package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The port of the broker, and its addresses on its two links, where it has a network namespace of its own.
const (
	port         = "7443"
	toWeirAddr   = "10.211.1.2"
	toConsumers  = "10.211.2.2"
	weirAddr     = "10.211.1.1"
	consumerAddr = "10.211.2.1"
)

// link is a cable between two network namespaces that can be pulled. One end of it is in the broker's.
type link struct {
	name string // of the device, at both ends
	ns   string // where it is pulled
}

// network is three namespaces: weir's and the consumers', and between them the broker's. Without root it is none, and all is on the loopback device.
type network struct {
	weir, broker, consumers string
	links                   []link
}

// newNetwork makes the namespaces, or says why they are left out.
func newNetwork(ctx context.Context) (n *network, leftOut string, err error) {
	if os.Geteuid() != 0 {
		return &network{}, "cut links (they need root)", nil
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return &network{}, "cut links (they need the command ip)", nil
	}
	name := func(what string) string { return fmt.Sprintf("weir-chaos-%d-%s", os.Getpid(), what) }
	n = &network{weir: name("weir"), broker: name("broker"), consumers: name("consumers")}
	n.links = []link{{"weir0", n.broker}, {"cons0", n.broker}}
	steps := []string{
		"netns add " + n.weir, "netns add " + n.broker, "netns add " + n.consumers,
		"link add weir0 netns " + n.weir + " type veth peer name weir0 netns " + n.broker,
		"link add cons0 netns " + n.consumers + " type veth peer name cons0 netns " + n.broker,
	}
	for _, end := range []struct{ ns, device, addr string }{
		{n.weir, "weir0", weirAddr}, {n.broker, "weir0", toWeirAddr}, {n.consumers, "cons0", consumerAddr}, {n.broker, "cons0", toConsumers},
	} {
		steps = append(steps,
			"-n "+end.ns+" addr add "+end.addr+"/24 dev "+end.device,
			"-n "+end.ns+" link set "+end.device+" up", "-n "+end.ns+" link set lo up")
	}
	for _, step := range steps {
		if err := ip(ctx, step); err != nil {
			return nil, "", errors.Join(err, n.close())
		}
	}
	return n, "", nil
}

// ip runs the command of that name.
func ip(ctx context.Context, args string) error {
	if out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("chaos: ip %s: %w: %s", args, err, out)
	}
	return nil
}

// within is the command line by which a program runs in a namespace.
func within(ns string) []string {
	if ns == "" {
		return nil
	}
	return []string{"ip", "netns", "exec", ns}
}

// cut pulls a link or puts it back.
func (l link) cut(ctx context.Context, yes bool) error {
	state := "up"
	if yes {
		state = "down"
	}
	return ip(ctx, "-n "+l.ns+" link set "+l.name+" "+state)
}

// close removes what there is of the namespaces.
func (n *network) close() error {
	var errs []error
	for _, ns := range []string{n.weir, n.broker, n.consumers} {
		if _, err := os.Stat("/run/netns/" + ns); ns != "" && err == nil {
			errs = append(errs, ip(context.Background(), "netns del "+ns))
		}
	}
	return errors.Join(errs...)
}
