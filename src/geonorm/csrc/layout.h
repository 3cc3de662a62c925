// The layout of what both sides read and write, as text: Python compares it with its own. A field that was renamed, moved,
// added or removed on one side only is noticed when the library is loaded.
#pragma once
#include <cstddef>
#include <string>

#include "job.h"

namespace geonorm {

struct Name {
    const char* name;
    size_t place;
};

#define GN_FIELD(field) \
    Name { #field, offsetof(Job, field) }
static const Name JOB_FIELDS[] = {
    GN_FIELD(dtype), GN_FIELD(layout), GN_FIELD(groups), GN_FIELD(runs), GN_FIELD(length), GN_FIELD(run_stride),
    GN_FIELD(group_stride), GN_FIELD(segments), GN_FIELD(features), GN_FIELD(rows), GN_FIELD(parameters),
    GN_FIELD(period), GN_FIELD(phi_count), GN_FIELD(centered), GN_FIELD(spread), GN_FIELD(samples),
    GN_FIELD(positions), GN_FIELD(phi), GN_FIELD(alpha), GN_FIELD(eps), GN_FIELD(psi), GN_FIELD(psi_factor),
    GN_FIELD(spread_floor), GN_FIELD(grad_floor), GN_FIELD(guard), GN_FIELD(phi_low), GN_FIELD(phi_high),
    GN_FIELD(phi_start), GN_FIELD(threads), GN_FIELD(momentum), GN_FIELD(normal_scale), GN_FIELD(offsets),
    GN_FIELD(x), GN_FIELD(g),
    GN_FIELD(y), GN_FIELD(dx), GN_FIELD(phis), GN_FIELD(alphas), GN_FIELD(shifts), GN_FIELD(gammas), GN_FIELD(betas),
    GN_FIELD(state), GN_FIELD(running_mean),
    GN_FIELD(running_var), GN_FIELD(running_center), GN_FIELD(running_scale), GN_FIELD(seen_mean),
    GN_FIELD(seen_var), GN_FIELD(seen_center), GN_FIELD(seen_scale), GN_FIELD(batches), GN_FIELD(d_phi),
    GN_FIELD(d_alpha), GN_FIELD(d_shift), GN_FIELD(d_gamma), GN_FIELD(d_beta), GN_FIELD(verdict),
    GN_FIELD(guard_counts), GN_FIELD(task), GN_FIELD(sizes), GN_FIELD(points), GN_FIELD(found), GN_FIELD(places)};
#undef GN_FIELD
static_assert(sizeof(Job) == 8 * (sizeof(JOB_FIELDS) / sizeof(Name)), "all fields of Job, each of 64 bits, are named here");

#define GN_COLUMN(column) \
    Name { #column, column }
static const Name STATE_COLUMNS[] = {
    GN_COLUMN(CENTER), GN_COLUMN(SPREAD), GN_COLUMN(RHO), GN_COLUMN(MEAN_Z), GN_COLUMN(UNIT), GN_COLUMN(LEAST),
    GN_COLUMN(LOWER), GN_COLUMN(UPPER), GN_COLUMN(MIDDLE), GN_COLUMN(UNIT_2), GN_COLUMN(LEAST_2), GN_COLUMN(LOWER_2),
    GN_COLUMN(UPPER_2), GN_COLUMN(FLOORED), GN_COLUMN(MEAN), GN_COLUMN(VAR), GN_COLUMN(BOUND), GN_COLUMN(SWEEPS),
    GN_COLUMN(MASS), GN_COLUMN(BY)};
#undef GN_COLUMN
static_assert(STATE_SIZE == sizeof(STATE_COLUMNS) / sizeof(Name), "all columns of State are named here");

// "job dtype:0 layout:8 ... state CENTER:0 ..."
inline std::string layout() {
    std::string text = "job";
    for (const Name& one : JOB_FIELDS) text += std::string(" ") + one.name + ":" + std::to_string(one.place);
    text += " state";
    for (const Name& one : STATE_COLUMNS) text += std::string(" ") + one.name + ":" + std::to_string(one.place);
    return text;
}

}  // namespace geonorm
