package s3test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// TestObjectsLeaveOutWhatAKillLeft: the second name of an object that the server was replacing when it was killed is none of the sink's.
func TestObjectsLeaveOutWhatAKillLeft(t *testing.T) {
	server := Start(t)
	server.MakeBucket("records")
	for _, name := range []string{"2026/a.jsonl", "2026/.a.jsonl.sgwtmp.1796048713196905097", ".b.length.sgwtmp.1", "c.sgwtmp.x"} {
		if _, err := server.Client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("records"), Key: &name, Body: strings.NewReader("x")}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, o := range server.Objects("records") {
		got = append(got, o.Name)
	}
	if want := "2026/a.jsonl c.sgwtmp.x"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
