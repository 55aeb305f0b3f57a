-- Whose words a note is, and whether it waits for its user's yes. What is held back is in no index.
ALTER TABLE notes ADD COLUMN origin TEXT NOT NULL DEFAULT 'agent';
ALTER TABLE notes ADD COLUMN held INTEGER NOT NULL DEFAULT 0;
