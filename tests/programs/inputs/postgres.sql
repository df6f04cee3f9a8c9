-- Sorting, hashing, text, JSON, regular expressions, a function that loops many times, and a query plan with several
-- worker processes.
\set ON_ERROR_STOP on
SET max_parallel_workers_per_gather = 2;
SET parallel_setup_cost = 0;
SET min_parallel_table_scan_size = 0;
SET work_mem = '2MB';
CREATE TABLE item AS
SELECT i AS id, 'name ' || i * 7919 % 200003 AS name, i % 97 AS kind, repeat('x', i % 50) AS note
FROM generate_series(1, 150000) i;
CREATE INDEX ON item (name);
ANALYZE item;
SELECT kind, count(*), sum(length(note)) FROM item GROUP BY kind ORDER BY 2 DESC, 1 LIMIT 5;
SELECT count(*), sum(a.id) FROM item a JOIN item b ON a.name = 'name ' || b.id;
SELECT md5(string_agg(name, ',' ORDER BY note DESC, name)) FROM item;
SELECT md5(jsonb_agg(jsonb_build_object('id', id, 'note', note) ORDER BY id)::text) FROM item WHERE id < 20000;
SELECT md5(string_agg(regexp_replace(name, '(\d)(\d+)', '\2-\1', 'g'), '' ORDER BY id)) FROM item WHERE id % 7 = 0;
WITH RECURSIVE n(i, t) AS (SELECT 1, 'x' UNION ALL SELECT i + 1, md5(t) FROM n WHERE i < 20000) SELECT max(t) FROM n;
CREATE FUNCTION build(n int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE total bigint := 0; words text[] := '{}';
BEGIN
    FOR i IN 1..n LOOP
        words := words || repeat('w', i % 90);
        BEGIN
            total := total + length(array_to_string(words[greatest(1, i - 5):i], ','));
            IF i % 100 = 0 THEN RAISE EXCEPTION 'again'; END IF;
        EXCEPTION WHEN raise_exception THEN total := total + 1;
        END;
    END LOOP;
    RETURN total;
END $$;
SELECT build(3000);
UPDATE item SET note = note || kind WHERE id % 3 = 0;
DELETE FROM item WHERE id % 5 = 0;
VACUUM (FULL) item;
SELECT count(*), sum(length(note)) FROM item;
