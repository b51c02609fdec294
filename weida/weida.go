// Package weida is messaging over streams: two kinds of transfers, straight on QUIC, and a few patterns that choose who gets them.
//
// A one-way transfer is one unidirectional stream: a header, then a payload of any length. An exchange is one bidirectional stream: a request in one
// direction, a reply or an error in the other, both at the same time if need be. Forty bytes and forty gigabytes are sent the same way, and nothing
// is held as a whole unless Collect is asked for it.
//
// # Choosing
//
// Whoever is bound claims paths in a Listener, and whoever dials is connected to one or more addresses, which it uses in turn:
//
//	bound      dialling    what goes over
//	Puller     Pusher      one-way transfers
//	Replier    Requester   exchanges
//	Publisher  Subscriber  a copy of each message to all who want its topic
//	BoundPair  DialledPair one-way transfers in both directions, between two alone
//	Replier    Surveyor    one exchange with each peer, within a time
//	BusMember  BusMember   a copy of each message to all that the sender has dialled
//	Acceptor   Peer        both, without a pattern
//
// A Listener is one namespace of paths, reached through any number of bindings. A path is opaque: nothing in it means anything but being equal to another.
//
//	rt, err := weida.NewRuntime(weida.Options{})
//	listener := rt.Listener()
//	replier, err := listener.Replier("/greet")
//	binding, err := listener.BindQUIC(":7443", weida.ServerTLS{Identity: id})
//
//	requester := rt.Requester(weida.ClientTLS{})
//	err = requester.Connect(ctx, "weida://"+id.Fingerprint().String()+"@host:7443/greet")
//	reply, err := requester.Request(ctx, weida.Meta{}, []byte("Ada"))
//
// # Who is who
//
// Every peer over QUIC is known by the fingerprint of its key. An address can name the one that must answer; otherwise a Trust says who may, by
// fingerprint or by a certificate authority. There is no other way to be accepted and none to skip the check. IncomingMeta.Peer says who sent a transfer,
// as the handshake proved it.
//
// # Within a machine
//
// Runtimes of a process that were given the same Options.Buses reach each other through BindInproc and weida+inproc://bus/path, where nobody has an identity;
// processes of a machine through BindUnix and weida+unix://<percent-encoded path>/path, where the kernel says who the peer is. There is no TLS, and the terms that an
// endpoint was made with mean nothing there. A receipt is there as soon as the transfer is finished. On a socket a refusal has no code and reaches the next write as
// ErrCanceled. There is no falling back from one scheme to another.
//
// # What an outcome means
//
//   - Send, Finish and Respond return when the last byte was handed to the link. That says nothing about the other side.
//   - Delivery.Wait returns nil when the peer's transport holds all of it. That says nothing about the peer's application, which may even have refused it.
//   - A reply, or what stands in its place, comes from the peer's application. An application that must know uses a Requester.
//   - Cursors says how far the receiver claims to have come, if the sender ordered a report and the receiver gives one.
//
// An error tells more: IsDefinite reports whether it is certain that nothing was done, so that trying again does nothing twice. After ErrIndeterminate and
// ErrNoReply it is not.
//
// # Copies, numbers and repeats
//
// A Publisher and a BusMember never wait for anybody: each receiver has a queue with bounds, and a copy that does not fit is dropped for that one alone and counted. Where both sides
// offer it in Options.Offered, one-way transfers are numbered: OrderDetect tells of gaps in IncomingMeta.Gap, OrderReassemble holds transfers back until
// their predecessors are there or too many wait, and DedupBounded drops what has come before. A link on which one side does not offer it has none of it; Options.Required refuses such a link.
//
// # Ends
//
// A transfer that is being sent ends by Finish or Cancel; one that is received, by io.EOF or Close; a request, by an answer or Close. What is canceled or
// refused is so at once at the other side, too, and a payload that was interrupted never ends in io.EOF. The context with which a transfer was opened is its life.
//
// # Lost links
//
// A link that is lost is dialled again, to the same key, with growing delays, for ever if not told otherwise. Meanwhile an open waits, and Pusher.Send
// fills an outbox. What was written to a link that then died is not sent again. Events tells of all of it.
package weida
