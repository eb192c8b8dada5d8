-- Orders, each under a key of its own, or under one of `keys` that were used before. Arguments: what keys begin with,
-- how many there are (0: no end), and a file of callers, one a line.
local prefix, keys, users, sent = nil, nil, {}, 0
local body = '{"sku":"desk","qty":2}'
local head = "POST /orders HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: "
    .. #body .. "\r\nX-User: "

init = function(args)
    prefix, keys = args[1], tonumber(args[2])
    for line in io.lines(args[3]) do
        users[#users + 1] = line
    end
end

request = function()
    local number = keys > 0 and sent % keys or sent
    local user = users[number % #users + 1]
    sent = sent + 1
    return head .. user .. "\r\nCookie: session=" .. user .. "\r\nIdempotency-Key: " .. prefix .. number .. "\r\n\r\n" .. body
end

done = function(summary, latency, requests)
    local e = summary.errors
    print(string.format("done %d %d %d %d %d", summary.requests, summary.duration, latency:percentile(99), e.status,
        e.connect + e.read + e.write + e.timeout))
end
