// Package kube builds the three servers of kube-apiserver, each for a process of its own.
//
// It mirrors k8s.io/kubernetes/cmd/kube-apiserver/app, whose parts it uses as they are:
// one set of options, one generic configuration made from it, and from that the
// configuration of each server. What a server does not need because the host does it (a
// listener, audit logging, priority and fairness) is left out.
//
// In the order of a start:
//
//   - stage.go makes an sdk.Stage of a constructor: newCore, NewExtensions or NewAggregator.
//   - options.go parses kube-apiserver's flags, and applies what is global in a process.
//   - generic.go makes of them what the configurations of all three servers have in common.
//   - shared.go makes what core makes for the other two servers in kube-apiserver.
//   - core.go, extensions.go and aggregator.go each build their server, and hand it to
//     apistage. Files that begin with one of these names are about that server alone.
//   - priorities.go has the order of API groups, for the stage that merges discovery. That is the aggregator; in a chain
//     without it, downstream.go is how core and extensions do it.
package kube
