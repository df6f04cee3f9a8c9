// installed_cxx.cpp - exits with 0 if the statistics of libcairn count an object of operator new.
#include <cairn/cairn.h>
#include <cstdlib>
#include <vector>

int main()
{
    cairn_stats before, after;
    cairn_statistics(&before);
    {
        const std::vector<int> numbers(100000, 1);
        cairn_statistics(&after);
    }
    return after.live_count == before.live_count + 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
