package httpsink

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/weir-agent/weir/sinks"
)

// itemAnswer is what an answer says of one record.
type itemAnswer struct {
	status int
	text   string
}

// apart fills the outcomes that are still open, sent in number, from an
// answer that may tell records apart. Where it has to, one that cannot be read for
// certain delivers nothing.
func (a *attempt) apart(out []sinks.Outcome, sent, status int, body []byte) {
	set := &a.sink.set
	var items []itemAnswer
	var err error
	switch {
	case set.Partial == PartialBulk:
		items, err = parseBulk(body, sent)
	case status == http.StatusMultiStatus:
		items, err = parseMultiStatus(body, sent)
	}
	if items == nil && (err == nil || set.Partial == PartialNone) { // the status answers for the batch as a whole
		items, err = make([]itemAnswer, sent), nil
		for i := range items {
			items[i].status = status
		}
	}
	next := 0
	for i := range out {
		if out[i].Verdict != sinks.Invalid {
			continue
		}
		if err != nil {
			out[i] = a.failed(err)
			out[i].Status = status
			continue
		}
		out[i] = a.itemOutcome(items[next])
		next++
	}
}

func (a *attempt) itemOutcome(item itemAnswer) sinks.Outcome {
	set := &a.sink.set
	o := sinks.Outcome{Verdict: set.status.verdict(item.status), Status: item.status}
	_, overridden := set.status[item.status]
	if item.status == http.StatusConflict && set.BulkAction == BulkActionCreate && !overridden {
		o.Verdict = sinks.Delivered // the document of this id is there: an earlier attempt made it
	}
	switch o.Verdict {
	case sinks.Delivered:
		return o
	case sinks.Split: // the record is alone already
		o.Verdict = sinks.Reject
	}
	o.Isolated = o.Verdict == sinks.Reject
	o.Reason = a.reason("item status " + strconv.Itoa(item.status) + ": " + item.text)
	return o
}

var errItemCount = errors.New("the answer does not have one item for each record")

// parseBulk reads an answer of Elasticsearch's _bulk: n items, in order, each an object of one
// member named for its action. Where errors is false the items may be left out.
func parseBulk(body []byte, n int) ([]itemAnswer, error) {
	var doc struct {
		Errors *bool `json:"errors"`
		Items  []map[string]struct {
			Status int             `json:"status"`
			Error  json.RawMessage `json:"error"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("the bulk answer cannot be read: %w", err)
	}
	items := make([]itemAnswer, 0, n)
	if doc.Items == nil && doc.Errors != nil && !*doc.Errors {
		for range n {
			items = append(items, itemAnswer{status: http.StatusOK})
		}
		return items, nil
	}
	if len(doc.Items) != n {
		return nil, errItemCount
	}
	for _, item := range doc.Items {
		if len(item) != 1 {
			return nil, errors.New("an item of the bulk answer does not have exactly one action")
		}
		for _, result := range item {
			if result.Status < 200 || result.Status > 599 {
				return nil, fmt.Errorf("an item of the bulk answer has status %d", result.Status)
			}
			items = append(items, itemAnswer{status: result.Status, text: string(result.Error)})
		}
	}
	return items, nil
}

// parseMultiStatus reads the body of a 207: an array of n objects with a status, in order, or an
// object with that array as items, results, responses or records.
func parseMultiStatus(body []byte, n int) ([]itemAnswer, error) {
	type item struct {
		Status  int             `json:"status"`
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	var list []item
	if err := json.Unmarshal(body, &list); err != nil {
		var doc struct{ Items, Results, Responses, Records []item }
		if err := json.Unmarshal(body, &doc); err != nil {
			return nil, fmt.Errorf("the multi-status answer cannot be read: %w", err)
		}
		for _, l := range [][]item{doc.Items, doc.Results, doc.Responses, doc.Records} {
			if l != nil && list != nil {
				return nil, errors.New("the multi-status answer has more than one list")
			}
			if l != nil {
				list = l
			}
		}
	}
	if len(list) != n {
		return nil, errItemCount
	}
	items := make([]itemAnswer, 0, n)
	for _, it := range list {
		if it.Status < 200 || it.Status > 599 {
			return nil, fmt.Errorf("an item of the multi-status answer has status %d", it.Status)
		}
		items = append(items, itemAnswer{status: it.Status, text: it.Message + " " + string(it.Error)})
	}
	return items, nil
}
