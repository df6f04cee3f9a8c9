# Makes a repository with a merge, packs, checks and searches it, and clones it. Together, these
# commands exercise most of git's code that allocates.
set -eu
git init --quiet --initial-branch=main work
cd work
git config gc.auto 0
git config pack.threads 4
for i in $(seq 1 12); do
    for j in $(seq 1 25); do
        seq "$i" $((i + 17 * j)) >"file$j"
    done
    seq 1 $((3000 * i)) >large
    git add .
    GIT_COMMITTER_DATE="2020-01-$i 12:00 +0000" git commit --quiet --date "2020-01-$i 12:00 +0000" -m "change $i"
done
git checkout --quiet -b side HEAD~4
sed -i 30,34d file3
git commit --quiet --all --date '2020-02-01 12:00 +0000' -m side
git checkout --quiet main
git merge --quiet --no-edit side
git gc --quiet --aggressive --prune=now
git fsck --no-progress --strict
git log --stat --oneline --graph | tail -n 40
git log -p --all -M -C | git hash-object --stdin
git blame -w file7 | git hash-object --stdin
git grep --threads 4 -c 7 HEAD~2 -- 'file*' | git hash-object --stdin
git archive HEAD~1 | git hash-object --stdin
cd ..
git clone --quiet --no-local "file://$PWD/work" clone
git clone --quiet --bare --depth 3 "file://$PWD/work" shallow
git -C clone status --short
git -C clone rev-parse HEAD
git -C shallow log --oneline
