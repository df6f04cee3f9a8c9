#include <cairn/arena.hpp>

#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

struct shape {
    shape(double width, double height) : area(width * height)
    {
    }
    double area;
};

int main()
{
    cairn::arena arena;

    // Any container of std::pmr takes a memory resource.
    {
        cairn::arena_scope scope(arena); // rewinds after the containers are destroyed
        cairn::arena_resource resource(arena);
        std::pmr::unordered_map<std::pmr::string, int> ages(&resource);
        ages["Ada, Countess of Lovelace"] = 36;
        std::printf("%zu of us\n", ages.size());
    }

    // Any other container takes an allocator, which makes no virtual calls.
    std::vector<int, cairn::arena_allocator<int>> numbers(arena);
    numbers.assign(1000, 7);

    // A pool serves objects that come and go.
    cairn::pool<shape> shapes;
    shape *square = shapes.create(2.0, 2.0);
    std::printf("%zu numbers, %g\n", numbers.size(), square->area);
    shapes.destroy(square);
}
