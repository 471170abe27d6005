package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/catena-dev/catena/examples/notes/v1"
)

// database has the notes and their latest changes. The number of a change is the
// resourceVersion of the note after it, and of lists.
type database struct{ *sql.DB }

const tables = `
CREATE TABLE IF NOT EXISTS notes (
	namespace TEXT NOT NULL, name TEXT NOT NULL, revision INTEGER NOT NULL, object TEXT NOT NULL,
	PRIMARY KEY (namespace, name));
CREATE TABLE IF NOT EXISTS changes (
	revision INTEGER PRIMARY KEY AUTOINCREMENT, before TEXT, after TEXT);
-- To clients, the resourceVersion 0 stands for any: an empty list is at 1.
INSERT INTO sqlite_sequence SELECT 'changes', 1 WHERE NOT EXISTS (SELECT * FROM sqlite_sequence);`

// history is how many changes are kept for watches that resume.
const history = 10000

// openDatabase opens the file, which several processes can have open: at a swap, two
// generations of the stage have.
func openDatabase(ctx context.Context, file string) (*database, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return nil, errors.Join(fmt.Errorf("database %s: %w", file, err), db.Close())
	}
	return &database{db}, nil
}

// errStale is the error of a write to a note that has changed since it was read.
var errStale = errors.New("the note has been changed")

// get returns a note; it is sql.ErrNoRows if the note is missing.
func (db *database) get(ctx context.Context, namespace, name string) (*v1.Note, error) {
	var revision int64
	var object string
	row := db.QueryRowContext(ctx, "SELECT revision, object FROM notes WHERE namespace = ? AND name = ?", namespace, name)
	if err := row.Scan(&revision, &object); err != nil {
		return nil, err
	}
	return decode(object, revision)
}

// list returns the notes of a namespace, or all, and the revision of the list.
func (db *database) list(ctx context.Context, namespace string) (*v1.NoteList, int64, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, err
	}
	defer tx.Rollback()
	list, revision := &v1.NoteList{Items: []v1.Note{}}, int64(0)
	if err := tx.QueryRowContext(ctx, "SELECT seq FROM sqlite_sequence").Scan(&revision); err != nil {
		return nil, 0, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT revision, object FROM notes WHERE namespace = ? OR ? = '' ORDER BY namespace, name", namespace, namespace)
	if err != nil {
		return nil, 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var at int64
		var object string
		if err := rows.Scan(&at, &object); err != nil {
			return nil, 0, err
		}
		note, err := decode(object, at)
		if err != nil {
			return nil, 0, err
		}
		list.Items = append(list.Items, *note)
	}
	list.ResourceVersion = strconv.FormatInt(revision, 10)
	return list, revision, rows.Err()
}

// write replaces before by after, in one transaction; nil stands for no note. The error is
// errStale if the stored note is not before. after gets its new resourceVersion.
func (db *database) write(ctx context.Context, before, after *v1.Note) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	note := after
	if after == nil {
		note = before
	}
	result, err := tx.ExecContext(ctx, "INSERT INTO changes (before, after) VALUES (?, ?)", encode(before), encode(after))
	if err != nil {
		return err
	}
	revision, err := result.LastInsertId()
	if err != nil {
		return err
	}
	if before != nil {
		result, err = tx.ExecContext(ctx, "DELETE FROM notes WHERE namespace = ? AND name = ? AND revision = ?", before.Namespace, before.Name, before.ResourceVersion)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errStale)
		}
	}
	if after != nil {
		result, err = tx.ExecContext(ctx, "INSERT INTO notes VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", after.Namespace, after.Name, revision, encode(after))
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, errStale)
		}
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM changes WHERE revision <= ?", revision-history); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	note.ResourceVersion = strconv.FormatInt(revision, 10)
	return nil
}

// change is one change of a note.
type change struct {
	revision      int64
	before, after *v1.Note
}

// since returns the changes after a revision, the oldest first. It also reports whether
// some of them are no longer kept.
func (db *database) since(ctx context.Context, revision int64) (changes []change, lost bool, err error) {
	rows, err := db.QueryContext(ctx, "SELECT revision, before, after FROM changes WHERE revision > ? ORDER BY revision LIMIT 1000", revision)
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	for rows.Next() {
		var c change
		var before, after sql.NullString
		if err := rows.Scan(&c.revision, &before, &after); err != nil {
			return nil, false, err
		}
		if c.before, err = decode(before.String, c.revision); err != nil {
			return nil, false, err
		}
		if c.after, err = decode(after.String, c.revision); err != nil {
			return nil, false, err
		}
		changes = append(changes, c)
	}
	if err := rows.Err(); err != nil {
		return nil, false, err
	}
	var oldest int64
	err = db.QueryRowContext(ctx, `SELECT coalesce((SELECT min(revision) FROM changes), (SELECT seq + 1 FROM sqlite_sequence))`).Scan(&oldest)
	return changes, revision+1 < oldest, err
}

// encode returns a note without its resourceVersion as JSON, nil for none.
func encode(note *v1.Note) any {
	if note == nil {
		return nil
	}
	stored := *note
	stored.ResourceVersion = ""
	text, err := json.Marshal(stored)
	if err != nil {
		return err.Error() // strings and numbers can always be encoded
	}
	return string(text)
}

func decode(object string, revision int64) (*v1.Note, error) {
	if object == "" {
		return nil, nil
	}
	note := &v1.Note{}
	if err := json.Unmarshal([]byte(object), note); err != nil {
		return nil, fmt.Errorf("note at revision %d: %w", revision, err)
	}
	note.ResourceVersion = strconv.FormatInt(revision, 10)
	return note, nil
}
