// Package deepcopy copies objects of an API without generated code:
//
//	func (n *Note) DeepCopyObject() runtime.Object { return deepcopy.Of(n) }
//
// It is slower than what deepcopy-gen writes: some microseconds for an object.
package deepcopy

import "reflect"

// Of returns a copy of v that shares nothing with it that can be changed. Types with a
// method DeepCopy are copied by that. Fields that are not exported are shared.
func Of[T any](v T) T {
	out := reflect.New(reflect.TypeFor[T]()).Elem()
	set(out, reflect.ValueOf(&v).Elem(), true)
	return out.Interface().(T)
}

// set makes to a copy of from. At the top no method is used: it may be the caller.
func set(to, from reflect.Value, top bool) {
	if !top && byMethod(to, from) {
		return
	}
	switch from.Kind() {
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			set(to.Elem(), from.Elem(), top)
		}
	case reflect.Interface:
		if !from.IsNil() {
			value := reflect.New(from.Elem().Type()).Elem()
			set(value, from.Elem(), false)
			to.Set(value)
		}
	case reflect.Struct:
		to.Set(from)
		for i := range from.NumField() {
			if from.Type().Field(i).IsExported() {
				set(to.Field(i), from.Field(i), false)
			}
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				set(to.Index(i), from.Index(i), false)
			}
		}
	case reflect.Array:
		for i := range from.Len() {
			set(to.Index(i), from.Index(i), false)
		}
	case reflect.Map:
		setMap(to, from)
	default:
		to.Set(from)
	}
}

func setMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
	for entries := from.MapRange(); entries.Next(); {
		value := reflect.New(from.Type().Elem()).Elem()
		set(value, entries.Value(), false)
		to.SetMapIndex(entries.Key(), value)
	}
}

// byMethod uses DeepCopy of the type or of a pointer to it.
func byMethod(to, from reflect.Value) bool {
	if from.Kind() == reflect.Pointer && from.IsNil() {
		return false
	}
	for _, v := range []reflect.Value{from, addressable(from)} {
		m := v.MethodByName("DeepCopy")
		if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
			continue
		}
		switch m.Type().Out(0) {
		case from.Type():
			to.Set(m.Call(nil)[0])
			return true
		case reflect.PointerTo(from.Type()):
			to.Set(m.Call(nil)[0].Elem())
			return true
		}
	}
	return false
}

// addressable returns a pointer to a value, or to a shallow copy of it.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v.Addr()
	}
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	return p
}
