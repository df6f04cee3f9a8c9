/* stats_text.h - writes statistics as text: JSON, Prometheus' format, or lines for a person. */
#ifndef CAIRN_ALLOC_STATS_TEXT_H
#define CAIRN_ALLOC_STATS_TEXT_H

#include "base/text.h"

#include <cairn/cairn.h>

/* Writes one JSON object, without a newline. If sites are counted, the object lists as many sites
 * as there is room for. */
void stats_write_json(struct text *text, const struct cairn_stats *stats);

/* Writes Prometheus' text format, version 0.0.4. */
void stats_write_prometheus(struct text *text, const struct cairn_stats *stats);

void stats_write_lines(struct text *text, const struct cairn_stats *stats);

#endif
