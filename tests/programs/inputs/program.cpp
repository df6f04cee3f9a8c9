/* Nested templates, for which a compiler must allocate much memory. */
#include <algorithm>
#include <iostream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

template <int N> struct numbered {
    int value = N;
    friend bool operator<(const numbered &a, const numbered &b) { return a.value < b.value; }
};

template <typename T> std::size_t fill_map(int count, T key)
{
    std::map<int, std::vector<T>> map;
    for (int i = 0; i < count; i++)
        map[(i * 7919) % 101].push_back(key);
    std::size_t sum = 0;
    for (auto &[place, keys] : map)
        sum += static_cast<std::size_t>(place) * keys.size();
    return sum;
}

template <int... N> std::size_t fill_maps(std::integer_sequence<int, N...>)
{
    return (fill_map(200 + N, numbered<N>{}) + ...);
}

template <int... N> auto make_tuples(std::integer_sequence<int, N...>)
{
    return std::make_tuple(std::make_tuple(N, std::to_string(N))...);
}

static std::string words(unsigned seed)
{
    std::unordered_map<std::string, int> seen;
    std::ostringstream out;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1103515245u + 12345u;
        seen["w" + std::to_string((seed >> 8) % 3000)]++;
    }
    std::vector<std::pair<int, std::string>> order;
    for (auto &[word, count] : seen)
        order.emplace_back(count, word);
    std::sort(order.begin(), order.end());
    out << order.size() << ' ' << order.front().second << ' ' << order.back().second;
    return out.str();
}

int main()
{
    std::cout << fill_maps(std::make_integer_sequence<int, 12>{}) << '\n';
    auto tuples = make_tuples(std::make_integer_sequence<int, 12>{});
    std::cout << std::get<1>(std::get<11>(tuples)) << '\n';

    std::vector<std::string> said(8);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < said.size(); i++)
        threads.emplace_back([&said, i] { said[i] = words(i); });
    for (auto &thread : threads)
        thread.join();
    for (auto &line : said)
        std::cout << line << '\n';

    std::variant<int, std::string, std::vector<double>> any = std::vector<double>(1000, 0.5);
    std::cout << std::visit([](auto &value) { return sizeof value; }, any) << '\n';
    return 0;
}
