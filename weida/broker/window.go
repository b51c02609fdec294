package broker

// window is the set of the ids that were admitted last, at most size of them.
type window struct {
	size  int
	known map[ID]mark
	order []dated // oldest first; one whose id is not known under that age any more is left over
	age   uint64
}

// mark is what is known of an id: the message that came with it last, and when.
type mark struct {
	seq Seq
	age uint64
}

type dated struct {
	id  ID
	age uint64
}

func newWindow(size int) window {
	return window{size: size, known: map[ID]mark{}}
}

func (w *window) find(id ID) (Seq, bool) {
	m, ok := w.known[id]
	return m.seq, ok
}

func (w *window) add(id ID, seq Seq) {
	if id == (ID{}) || w.size <= 0 {
		return
	}
	w.age++
	w.known[id] = mark{seq, w.age}
	w.order = append(w.order, dated{id, w.age})
	for len(w.known) > w.size || len(w.order) > 2*w.size {
		w.trim()
	}
}

func (w *window) trim() {
	oldest := w.order[0]
	w.order = w.order[1:]
	if w.known[oldest.id].age == oldest.age {
		w.remove(oldest.id)
	}
}

func (w *window) remove(id ID) {
	delete(w.known, id)
}
