/* One thread makes a list of nodes of 48 bytes, walks over it in the order in which the nodes were
 * made, and frees it. It does all this twice.
 *
 * The arguments are the number of nodes and the number of walks.
 */
#include <stdlib.h>

struct node {
    struct node *next;
    long values[5];
};

int main(int count, char **arguments)
{
    long nodes = count > 1 ? strtol(arguments[1], NULL, 10) : 150000;
    long walks = count > 2 ? strtol(arguments[2], NULL, 10) : 20;
    long sum = 0;
    for (int round = 0; round < 2; round++) {
        struct node *first = NULL, **end = &first;
        for (long i = 0; i < nodes; i++) {
            struct node *node = malloc(sizeof *node);
            if (node == NULL)
                return 1;
            node->next = NULL;
            node->values[0] = node->values[4] = i;
            *end = node;
            end = &node->next;
        }
        for (long walk = 0; walk < walks; walk++)
            for (struct node *node = first; node != NULL; node = node->next)
                sum += node->values[0] ^ (sum >> 3);
        while (first != NULL) {
            struct node *next = first->next;
            free(first);
            first = next;
        }
    }
    return sum == 42;
}
