// Package clients tests programs and libraries of others against Catena under the name kube-apiserver:
// controller-runtime's envtest, helm and kwokctl. It is a module of its own, so that their requirements
// are not those of Catena. "make test-clients" builds what it needs.
package clients
