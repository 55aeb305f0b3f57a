-- Notes and memory files, their passages and vectors.
CREATE TABLE notes (
    id TEXT PRIMARY KEY,
    user TEXT NOT NULL,
    text TEXT NOT NULL,
    tags TEXT NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
) STRICT;
CREATE INDEX notes_by_user ON notes (user, updated DESC, id);
CREATE TABLE note_tags (
    tag TEXT NOT NULL,
    note TEXT NOT NULL REFERENCES notes (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, note)
) STRICT, WITHOUT ROWID;
CREATE INDEX note_tags_by_note ON note_tags (note);
CREATE TABLE memory_files (
    place TEXT NOT NULL,
    path TEXT NOT NULL,
    mark TEXT NOT NULL,
    PRIMARY KEY (place, path)
) STRICT, WITHOUT ROWID;
-- How far a conversation has been taken into the index.
CREATE TABLE heard (
    session TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    upto INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- What is searched together and by nobody else: a user's notes, a place's files, a user's conversations. The counters
-- begin anywhere, so that what a process remembers of another file is never taken for this one.
CREATE TABLE shelves (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    added INTEGER NOT NULL DEFAULT (random() / 4),
    changed INTEGER NOT NULL DEFAULT (random() / 4),
    UNIQUE (kind, name)
) STRICT;
-- A piece of text that is found as one. `at` orders them: neighbours in time are neighbours here.
CREATE TABLE passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    shelf INTEGER NOT NULL REFERENCES shelves (id),
    source TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    text TEXT NOT NULL,
    at INTEGER NOT NULL,
    model TEXT NOT NULL,
    tokens BLOB NOT NULL,
    vector BLOB NOT NULL
) STRICT;
CREATE INDEX passages_by_source ON passages (shelf, source, first);
CREATE INDEX passages_by_model ON passages (shelf, model);
-- The shelf stands in the index beside the text, so that a search sees one shelf alone before it ranks anything.
CREATE VIRTUAL TABLE passages_fts USING fts5 (
    text, shelf, content = 'passages', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);
INSERT INTO passages_fts (passages_fts, rank) VALUES ('rank', 'bm25(1.0, 0.0)');
CREATE TRIGGER passages_added AFTER INSERT ON passages BEGIN
    INSERT INTO passages_fts (rowid, text, shelf) VALUES (new.id, new.text, new.shelf);
    UPDATE shelves SET added = added + 1 WHERE id = new.shelf;
END;
CREATE TRIGGER passages_gone AFTER DELETE ON passages BEGIN
    INSERT INTO passages_fts (passages_fts, rowid, text, shelf) VALUES ('delete', old.id, old.text, old.shelf);
    UPDATE shelves SET changed = changed + 1 WHERE id = old.shelf;
END;
CREATE TRIGGER passages_read_anew AFTER UPDATE OF model, tokens, vector ON passages BEGIN
    UPDATE shelves SET changed = changed + 1 WHERE id = new.shelf;
END;
-- What was taken back in a conversation is not recalled.
CREATE TRIGGER messages_unsaid AFTER DELETE ON messages BEGIN
    DELETE FROM passages WHERE source = old.session AND first = old.seq
        AND shelf IN (SELECT id FROM shelves WHERE kind = 'talk');
    UPDATE heard SET upto = min(upto, old.seq - 1) WHERE session = old.session;
END;
