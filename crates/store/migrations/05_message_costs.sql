-- What each answer of a model took; the sum stays with the conversation.
ALTER TABLE messages ADD COLUMN prompt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN completion_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN cost REAL NOT NULL DEFAULT 0;
