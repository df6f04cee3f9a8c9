-- Tables, strings, patterns, coroutines and closures. Lua allocates, resizes and frees every block by realloc and free.
local function build(seed)
    local index, words = {}, {}
    for i = 1, 40000 do
        local word = "word" .. (i * 7919 + seed) % 5003
        index[word] = index[word] or {}
        table.insert(index[word], i)
        words[#words + 1] = word .. string.rep("x", i % 40)
    end
    table.sort(words)
    local text = table.concat(words, ";")
    local turned, count = text:gsub("word(%d+)", function(digits) return digits:reverse() end)
    local sum = 0
    for byte in turned:gmatch("[x;](.)") do
        sum = (sum * 31 + byte:byte()) % 1000000007
    end
    local names = coroutine.wrap(function()
        for name in pairs(index) do coroutine.yield(name) end
    end)
    local total = 0
    for name in names do total = total + #index[name] end
    return string.format("%d %d %d", count, sum, total)
end

for seed = 1, 8 do
    print(build(seed))
    if seed % 3 == 0 then collectgarbage() end
    if seed == 4 then collectgarbage("generational") end
end
