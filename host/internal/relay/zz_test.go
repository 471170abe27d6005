package relay
import ("testing";"net/http")
func TestConnectX(t *testing.T){
	stage := serveStage(t, http.HandlerFunc(describe))
	srv := serve(t, newChain(t, Config{Carrier: identity{}}, stage))
	t.Log(exchangeRaw(t, srv.Listener.Addr(), "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n"))
	t.Log(exchangeRaw(t, srv.Listener.Addr(), "CONNECT /x/y HTTP/1.1\r\nHost: h\r\n\r\n"))
	t.Log(exchangeRaw(t, srv.Listener.Addr(), "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"))
	t.Log(exchangeRaw(t, srv.Listener.Addr(), "GET mailto:x HTTP/1.1\r\nHost: h\r\n\r\n"))
}
