// words.cc - counts the words on standard input. What 'make demo' compiles: an ordinary program on ordinary containers.
#include <algorithm>
#include <cctype>
#include <iostream>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

int main()
{
    std::unordered_map<std::string, size_t> counts;
    for (std::string word; std::cin >> word;) {
        word.erase(std::remove_if(word.begin(), word.end(), [](unsigned char c) { return !std::isalpha(c); }), word.end());
        std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
        if (!word.empty())
            counts[word]++;
    }
    std::multimap<size_t, std::string, std::greater<>> ranked;
    for (auto &[word, count] : counts)
        ranked.emplace(count, word);
    for (auto &[count, word] : ranked)
        std::cout << count << ' ' << word << '\n';
}
