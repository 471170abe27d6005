package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/catena-dev/catena/examples/notes/v1"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apistage"
)

var resource = schema.GroupResource{Group: "notes.example.com", Resource: "notes"}

// storage implements the interfaces of Kubernetes' handlers, which add patch, apply and
// selectors; rest.BeforeCreate and the like call the functions of the Kind.
type storage struct {
	apistage.Strategy
	db      *database
	env     *sdk.Env
	changed broadcast
}

func openStorage(env *sdk.Env, strategy apistage.Strategy) (*storage, error) {
	db, err := openDatabase(env.Context(), filepath.Join(env.DataDir(), "notes.db"))
	if err != nil {
		return nil, err
	}
	s := &storage{Strategy: strategy, db: db, env: env}
	env.OnDestroy(s.Destroy)
	return s, nil
}

func (*storage) New() runtime.Object     { return &v1.Note{} }
func (*storage) NewList() runtime.Object { return &v1.NoteList{} }
func (s *storage) Destroy()              { _ = s.db.Close() }
func (s *storage) ReadinessCheck() error { return s.db.Ping() }

func (s *storage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return s.get(ctx, name)
}

func (s *storage) get(ctx context.Context, name string) (*v1.Note, error) {
	note, err := s.db.get(ctx, request.NamespaceValue(ctx), name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return note, err
}

func (s *storage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	list, _, err := s.list(ctx, options)
	return list, err
}

// list returns the notes that the options select. There are no pages: limit is ignored.
func (s *storage) list(ctx context.Context, options *internalversion.ListOptions) (*v1.NoteList, int64, error) {
	list, revision, err := s.db.list(ctx, request.NamespaceValue(ctx))
	if err != nil {
		return nil, 0, err
	}
	selected, all := s.selector(options), list.Items
	list.Items = all[:0]
	for i := range all {
		if selected(&all[i]) {
			list.Items = append(list.Items, all[i])
		}
	}
	return list, revision, nil
}

func (s *storage) Create(ctx context.Context, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	note := object.(*v1.Note)
	rest.FillObjectMetaSystemFields(note)
	if note.GenerateName != "" && note.Name == "" {
		note.Name = s.GenerateName(note.GenerateName)
	}
	if err := rest.BeforeCreate(s, ctx, note); err != nil {
		return nil, err
	}
	if validate != nil {
		if err := validate(ctx, note.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	err := s.write(ctx, nil, note, dryrun.IsDryRun(options.DryRun))
	if errors.Is(err, errStale) {
		err = rest.CheckGeneratedNameError(ctx, s, apierrors.NewAlreadyExists(resource, note.Name), note)
	}
	return note, err
}

// write stores a change, unless it is a dry run.
func (s *storage) write(ctx context.Context, before, after *v1.Note, dry bool) error {
	if dry {
		return nil
	}
	if err := s.db.write(ctx, before, after); err != nil {
		return err
	}
	s.changed.send()
	return nil
}

// attempts bounds how often an update that does not insist on a resourceVersion is tried.
const attempts = 10

func (s *storage) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, mayCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	for range attempts {
		before, err := s.get(ctx, name)
		if apierrors.IsNotFound(err) && mayCreate {
			object, err := info.UpdatedObject(ctx, &v1.Note{})
			if err != nil {
				return nil, false, err
			}
			created, err := s.Create(ctx, object, create, &metav1.CreateOptions{DryRun: options.DryRun})
			return created, true, err
		}
		if err != nil {
			return nil, false, err
		}
		after, insists, err := s.update(ctx, before, info, update, dryrun.IsDryRun(options.DryRun))
		switch {
		case !errors.Is(err, errStale):
			return after, false, err
		case insists:
			return nil, false, apierrors.NewConflict(resource, name, fmt.Errorf("%w; apply your changes to the latest version", errStale))
		}
	}
	return nil, false, apierrors.NewConflict(resource, name, errStale)
}

// update makes one attempt. It reports whether the client insists on a resourceVersion.
func (s *storage) update(ctx context.Context, before *v1.Note, info rest.UpdatedObjectInfo, validate rest.ValidateObjectUpdateFunc, dry bool) (*v1.Note, bool, error) {
	object, err := info.UpdatedObject(ctx, before.DeepCopyObject())
	if err != nil {
		return nil, false, err
	}
	after := object.(*v1.Note)
	insists := after.ResourceVersion != ""
	if p := info.Preconditions(); p != nil && p.UID != nil && *p.UID != before.UID {
		return nil, false, apierrors.NewConflict(resource, before.Name, fmt.Errorf("the UID in the precondition is %s, that of the note is %s", *p.UID, before.UID))
	}
	if insists && after.ResourceVersion != before.ResourceVersion {
		return nil, true, errStale
	}
	after.ResourceVersion = before.ResourceVersion
	if err := rest.BeforeUpdate(s, ctx, after, before); err != nil {
		return nil, insists, err
	}
	if validate != nil {
		if err := validate(ctx, after.DeepCopyObject(), before.DeepCopyObject()); err != nil {
			return nil, insists, err
		}
	}
	if after.DeletionTimestamp != nil && len(after.Finalizers) == 0 {
		return after, insists, s.write(ctx, before, nil, dry)
	}
	return after, insists, s.write(ctx, before, after, dry)
}

func (s *storage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	for range attempts {
		before, err := s.get(ctx, name)
		if err != nil {
			return nil, false, err
		}
		if _, _, err := rest.BeforeDelete(s, ctx, before.DeepCopyObject(), options); err != nil {
			return nil, false, err
		}
		if validate != nil {
			if err := validate(ctx, before.DeepCopyObject()); err != nil {
				return nil, false, err
			}
		}
		var after *v1.Note // none, or one that waits for its finalizers
		if len(before.Finalizers) > 0 {
			after = before.DeepCopyObject().(*v1.Note)
			now := metav1.Now()
			after.DeletionTimestamp = &now
		}
		if before.DeletionTimestamp != nil && after != nil {
			return before, false, nil
		}
		err = s.write(ctx, before, after, dryrun.IsDryRun(options.DryRun))
		if after != nil && err == nil {
			return after, false, nil
		}
		if !errors.Is(err, errStale) {
			return before, true, err
		}
	}
	return nil, false, apierrors.NewConflict(resource, name, errStale)
}

func (s *storage) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions, selected *internalversion.ListOptions) (runtime.Object, error) {
	list, _, err := s.list(ctx, selected)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if _, _, err := s.Delete(ctx, list.Items[i].Name, validate, options.DeepCopy()); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return list, nil
}
