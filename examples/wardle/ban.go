package main

import (
	"context"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/sample-apiserver/pkg/admission/plugin/banflunder"
	clientset "k8s.io/sample-apiserver/pkg/generated/clientset/versioned"
	informers "k8s.io/sample-apiserver/pkg/generated/informers/externalversions"

	"github.com/catena-dev/catena/sdk/apistage"
)

// ban runs the admission plugin of the sample API server: flunders that a fischer disallows
// are refused.
type ban struct {
	informers informers.SharedInformerFactory
}

func (b *ban) admission(setup *apistage.Setup) ([]admission.Interface, error) {
	client, err := clientset.NewForConfig(setup.Loopback)
	if err != nil {
		return nil, err
	}
	b.informers = informers.NewSharedInformerFactory(client, 0)
	plugin, err := banflunder.New()
	if err != nil {
		return nil, err
	}
	plugin.SetInternalWardleInformerFactory(b.informers)
	return []admission.Interface{plugin}, nil
}

// start lets the plugin see the fischers, through the server: the stage needs the right
// to list them.
func (b *ban) start(ctx context.Context, _ *apistage.Setup) error {
	b.informers.Start(ctx.Done())
	return nil
}
