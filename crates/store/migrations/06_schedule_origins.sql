-- The conversation that made a schedule; its results are delivered there.
ALTER TABLE schedules ADD COLUMN origin TEXT;
