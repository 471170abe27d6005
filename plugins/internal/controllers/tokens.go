package controllers

import (
	"context"
	"fmt"
	"os"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokens is the controller of Secrets with tokens of service accounts. Kubernetes' package app has it for its own command alone.
type tokens struct {
	*serviceaccountcontroller.TokensController
	workers int
}

// Name is the name that kube-controller-manager has for it.
func (t tokens) Name() string { return names.ServiceAccountTokenController }

// Run runs it until ctx ends.
func (t tokens) Run(ctx context.Context) { t.TokensController.Run(ctx, t.workers) }

// newTokens returns the controller; nil if there is no key to sign with, as in kube-controller-manager.
func (m *manager) newTokens(ctx context.Context, c app.ControllerContext) (app.Controller, error) {
	o := c.ComponentConfig.SAController
	if o.ServiceAccountKeyFile == "" {
		return nil, nil
	}
	key, err := keyutil.PrivateKeyFromFile(o.ServiceAccountKeyFile)
	if err != nil {
		return nil, fmt.Errorf("key of %s: %w", names.ServiceAccountTokenController, err)
	}
	var root []byte
	if o.RootCAFile != "" {
		if root, err = os.ReadFile(o.RootCAFile); err == nil {
			_, err = cert.ParseCertsPEM(root)
		}
		if err != nil {
			return nil, fmt.Errorf("root-ca-file %s: %w", o.RootCAFile, err)
		}
	}
	client, err := m.root.Client("tokens-controller")
	if err != nil {
		return nil, err
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, fmt.Errorf("tokens of service accounts: %w", err)
	}
	controller, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx),
		c.InformerFactory.Core().V1().ServiceAccounts(), c.InformerFactory.Core().V1().Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: root})
	if err != nil {
		return nil, fmt.Errorf("tokens of service accounts: %w", err)
	}
	return tokens{controller, int(o.ConcurrentSATokenSyncs)}, nil
}
