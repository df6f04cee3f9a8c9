create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i+1 from n where i<60000) insert into t select i, 'name '||(i*7919%60000), i*1.5 from n;
create index tb on t(b);
select count(*), sum(c) from t where b like 'name 1%';
select b, count(*) from t group by substr(b,1,7) order by 2 desc limit 5;
select group_concat(b) from (select b from t order by c desc limit 20000);
