# Arrays, strings, substitutions, pipes and many children.
set -eu
declare -A seen
list=()
for ((i = 0; i < 8000; i++)); do
    word=w$((i * 7919 % 1009))
    seen[$word]=$((${seen[$word]:-0} + i))
    list+=("$word-$i")
done
sum=0
for word in "${!seen[@]}"; do
    sum=$((sum + seen[$word]))
done
echo "${#seen[@]} ${#list[@]} $sum"
text="${list[*]}"
echo "${#text} $(cksum <<<"${text//w/ww}")"
for i in {1..40}; do
    printf '%s ' "$(printf '%s\n' "${list[@]:i*10:10}" | sort -r | head -n 1)"
done
echo
for i in {1..4}; do
    (for ((j = 0; j < 3000; j++)); do part+=$j; done; echo "${#part}") &
    wait $!
done
mapfile -t lines < <(seq 20000 | rev)
unset 'lines[7]' list
echo "${#lines[@]} ${lines[4999]} ${text:1000:20}"
[[ $text =~ w([0-9]+)-7999 ]] && echo "${BASH_REMATCH[1]}"
