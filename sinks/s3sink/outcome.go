//go:build !nos3

package s3sink

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/weir-agent/weir/sinks"
	"github.com/weir-agent/weir/sinks/setup"
)

// regionHeader is where AWS says which region a bucket is in.
const regionHeader = "X-Amz-Bucket-Region"

// outcomeOf returns what the end of an attempt over l means for its batch; l is nil where it came to none.
func outcomeOf(err error, l *link) sinks.Outcome {
	if err == nil {
		return sinks.Outcome{Verdict: sinks.Delivered}
	}
	var secrets []string
	if l != nil {
		secrets = []string{l.files.secretKey, l.files.sessionToken}
	}
	say := func(v sinks.Verdict, status int, text string) sinks.Outcome {
		return sinks.Outcome{Verdict: v, Status: status, Reason: sinks.CleanReason(text, secrets...)}
	}
	if _, ok := errors.AsType[*setup.Unfit](err); ok {
		return say(sinks.Hold, 0, err.Error())
	}
	if send, ok := errors.AsType[*smithyhttp.RequestSendError](err); ok {
		err = send.Err
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which is another one for each object
		}
		return say(sinks.Retry, 0, err.Error())
	}
	answer, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok || answer.Response == nil || answer.Response.Response == nil {
		if _, ok := errors.AsType[*smithy.OperationError](err); ok {
			return say(sinks.Hold, 0, err.Error()) // the client cannot make a request of such options
		}
		return say(sinks.Retry, 0, err.Error())
	}
	status, header := answer.HTTPStatusCode(), answer.Response.Header
	fault, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return say(verdictOf("", status), status, strconv.Itoa(status)+": "+answer.Err.Error())
	}
	text := strconv.Itoa(status) + " " + fault.ErrorCode() + ": " + fault.ErrorMessage()
	if region := header.Get(regionHeader); l != nil && region != "" && region != l.region {
		text = strconv.Itoa(status) + " " + fault.ErrorCode() + ": the bucket is in the region " + region + ", not in " + l.region
	}
	verdict := verdictOf(fault.ErrorCode(), status)
	if slowsDown(fault.ErrorCode()) && status != http.StatusTooManyRequests {
		status = http.StatusServiceUnavailable // for the drain, which sends less after either
	}
	o := say(verdict, status, text)
	if verdict == sinks.Retry {
		o.RetryAfter = retryAfter(header)
	}
	return o
}

// retryAfter returns what a server asks for in whole seconds; 0 for none, and for anything else. The drain bounds it.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// slowsDown tells the codes by which a server asks for fewer requests.
func slowsDown(code string) bool {
	switch code {
	case "SlowDown", "SlowDownRead", "SlowDownWrite", "ServiceUnavailable", "Busy", "Throttling", "ThrottlingException", "TooManyRequests",
		"RequestLimitExceeded", "BandwidthLimitExceeded":
		return true
	}
	return false
}

// verdictOf is the table of the package comment.
func verdictOf(code string, status int) sinks.Verdict {
	switch code {
	case "EntityTooLarge", "MaxMessageLengthExceeded":
		return sinks.Split
	case "RequestTimeout", "InternalError", "OperationAborted", "ConditionalRequestConflict",
		"BadDigest", "InvalidDigest", "IncompleteBody", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", // damaged on the way
		"NoSuchUpload", "InvalidPart", "InvalidPartOrder": // the next attempt makes an upload of its own
		return sinks.Retry
	}
	switch {
	case slowsDown(code):
		return sinks.Retry
	case status == http.StatusRequestEntityTooLarge:
		return sinks.Split
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusMisdirectedRequest, status == http.StatusLocked,
		status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return sinks.Retry
	case status == http.StatusNotImplemented:
		return sinks.Hold // a header that the options ask for
	case status >= http.StatusInternalServerError, status < http.StatusMultipleChoices: // an error in an answer that began well
		return sinks.Retry
	}
	return sinks.Hold
}
