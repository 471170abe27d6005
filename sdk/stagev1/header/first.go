package header

import "net/http"

// First returns the first value of a header by its canonical key, which costs less than http.Header.Get.
func First(h http.Header, canonical string) string {
	if values := h[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}
