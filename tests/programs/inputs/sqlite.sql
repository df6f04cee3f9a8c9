-- Inserts, indexes, changes, joins and deletes up to 200,000 rows, and compacts the database.
PRAGMA journal_mode = MEMORY;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -20000;
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, kind INTEGER, note TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
INSERT INTO item SELECT i, 'name ' || (i * 7919 % 200003), i % 97, substr('abcdefghijklmnopqrstuvwxyz', 1, i % 26 + 1) FROM n;
CREATE INDEX item_name ON item (name);
CREATE INDEX item_kind ON item (kind, note);
SELECT kind, count(*), sum(length(name)), max(name) FROM item GROUP BY kind ORDER BY count(*) DESC, kind LIMIT 5;
SELECT count(*) FROM item a JOIN item b ON b.name = 'name ' || (a.id % 5000) WHERE a.id < 20000;
UPDATE item SET note = note || '!' || kind WHERE id % 3 = 0;
DELETE FROM item WHERE id % 5 = 0;
SELECT group_concat(name, ',') FROM (SELECT name FROM item ORDER BY note DESC, name LIMIT 20);
SELECT json_group_array(json_object('id', id, 'note', note)) FROM (SELECT * FROM item ORDER BY id LIMIT 3);
SELECT sum(length(t)) FROM (SELECT group_concat(note, ' ') AS t FROM item GROUP BY kind);
VACUUM;
PRAGMA integrity_check;
SELECT count(*), min(id), max(id), total(length(note)) FROM item;
