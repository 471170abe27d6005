package main

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/catena-dev/catena/examples/backup/v1"
	"github.com/catena-dev/catena/sdk/apistage"
)

// worker copies what has no copy yet.
type worker struct {
	*apistage.Setup
	backups rest.Interface
	store   cache.Store
	queue   workqueue.TypedRateLimitingInterface[string]
}

// work runs in one process of the stage at a time, until ctx ends; another begins when it has returned.
func work(ctx context.Context, setup *apistage.Setup) error {
	backups, err := setup.RESTClient()
	if err != nil {
		return err
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	w := &worker{Setup: setup, backups: backups, queue: queue}
	enqueue := func(object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	var informer cache.Controller
	w.store, informer = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(backups, "backups", metav1.NamespaceAll, fields.Everything()),
		ObjectType:    &v1.Backup{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) },
		},
	})
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	running.Go(func() {
		for w.next(ctx) {
		}
	})
	running.Wait()
	return nil
}

// next works on one object, and tries again later what has failed.
func (w *worker) next(ctx context.Context) bool {
	key, stop := w.queue.Get()
	if stop {
		return false
	}
	defer w.queue.Done(key)
	object, exists, err := w.store.GetByKey(key)
	if err == nil && exists {
		err = w.copy(ctx, object.(*v1.Backup))
	}
	if err == nil {
		w.queue.Forget(key)
		return true
	}
	if ctx.Err() == nil && !apierrors.IsConflict(err) {
		w.Env.Log.Info("a backup is tried again", "backup", key, "error", err)
	}
	w.queue.AddRateLimited(key)
	return true
}

// copy gets the ConfigMap and writes its data into the status.
func (w *worker) copy(ctx context.Context, b *v1.Backup) error {
	if b.Status.Phase != "" {
		return nil
	}
	b = b.DeepCopyObject().(*v1.Backup)
	switch source, err := w.Client.CoreV1().ConfigMaps(b.Namespace).Get(ctx, b.Spec.ConfigMap, metav1.GetOptions{}); {
	case err == nil:
		b.Status = v1.BackupStatus{Phase: "Done", ResourceVersion: source.ResourceVersion, Data: source.Data}
	case apierrors.IsNotFound(err) && b.Spec.IfMissing == "Fail":
		b.Status.Phase = "Failed"
	default:
		return err
	}
	put := w.backups.Put().Namespace(b.Namespace).Resource("backups").Name(b.Name).SubResource("status")
	return put.Body(b).Do(ctx).Error()
}
