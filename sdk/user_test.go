package sdk

import "testing"

// BenchmarkParseUser is what a stage saves that does not ask for the user of a request.
func BenchmarkParseUser(b *testing.B) {
	const header = `{"name":"admin","uid":"7","groups":["system:masters","system:authenticated"],"extra":{"authentication.kubernetes.io/credential-id":["X509SHA256=00"]}}`
	b.ReportAllocs()
	for b.Loop() {
		if parseHeader[User](header) == nil {
			b.Fatal("the header is malformed")
		}
	}
}
